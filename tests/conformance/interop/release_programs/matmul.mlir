// A product, a bias and a rectifier: several kernels over one transient buffer.
func.func @main(%a: tensor<9x33xf32>, %b: tensor<33x17xf32>, %c: tensor<9x17xf32>) -> tensor<9x17xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x17xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x17xf32>) -> tensor<9x17xf32>
  %p = linalg.matmul ins(%a, %b : tensor<9x33xf32>, tensor<33x17xf32>) outs(%f : tensor<9x17xf32>) -> tensor<9x17xf32>
  %s = arith.addf %p, %c : tensor<9x17xf32>
  %r = arith.maximumf %s, %f : tensor<9x17xf32>
  return %r : tensor<9x17xf32>
}
