util.global private @w0 = #stream.parameter.named<"model"::"w0"> : tensor<7x5xf32>
util.global private @w1 = #stream.parameter.named<"model"::"w1"> : tensor<5xf32>
util.global private @w2 = #stream.parameter.named<"model"::"w2"> : tensor<3x7xi16>
func.func @main(%x: tensor<3x7xf32>) -> (tensor<3x5xf32>, tensor<3x7xi16>) {
  %w0 = util.global.load @w0 : tensor<7x5xf32>
  %w1 = util.global.load @w1 : tensor<5xf32>
  %w2 = util.global.load @w2 : tensor<3x7xi16>
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x5xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %m = linalg.matmul ins(%x, %w0 : tensor<3x7xf32>, tensor<7x5xf32>) outs(%z : tensor<3x5xf32>) -> tensor<3x5xf32>
  %b = linalg.broadcast ins(%w1 : tensor<5xf32>) outs(%e : tensor<3x5xf32>) dimensions = [0]
  %r = linalg.generic {indexing_maps=[affine_map<(i,j)->(i,j)>,affine_map<(i,j)->(i,j)>,affine_map<(i,j)->(i,j)>],iterator_types=["parallel","parallel"]} ins(%m, %b : tensor<3x5xf32>, tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) { ^bb0(%p: f32, %q: f32, %o: f32): %s = arith.addf %p, %q : f32 linalg.yield %s : f32 } -> tensor<3x5xf32>
  return %r, %w2 : tensor<3x5xf32>, tensor<3x7xi16>
}
