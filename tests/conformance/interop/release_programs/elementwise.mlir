// One kernel with a constant that is folded into it.
func.func @main(%a: tensor<5x7xf32>, %b: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %half = arith.constant dense<0.5> : tensor<5x7xf32>
  %0 = arith.mulf %a, %half : tensor<5x7xf32>
  %1 = arith.addf %0, %b : tensor<5x7xf32>
  %2 = math.exp %1 : tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}
