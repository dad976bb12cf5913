// A convolution over a padded image.
func.func @main(%x: tensor<1x8x9x3xf32>, %w: tensor<3x3x3x5xf32>) -> tensor<1x4x4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 0, 0] high[0, 0, 0, 0] {
  ^bb0(%n: index, %h: index, %v: index, %c: index):
    tensor.yield %zero : f32
  } : tensor<1x8x9x3xf32> to tensor<1x9x9x3xf32>
  %e = tensor.empty() : tensor<1x4x4x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x4x5xf32>) -> tensor<1x4x4x5xf32>
  %r = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
    ins(%p, %w : tensor<1x9x9x3xf32>, tensor<3x3x3x5xf32>) outs(%f : tensor<1x4x4x5xf32>) -> tensor<1x4x4x5xf32>
  return %r : tensor<1x4x4x5xf32>
}
