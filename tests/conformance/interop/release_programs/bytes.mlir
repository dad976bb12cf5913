// A product of small integers with a wide sum.
func.func @main(%a: tensor<5x24xi8>, %b: tensor<24x6xi8>) -> tensor<5x6xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<5x6xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<5x6xi32>) -> tensor<5x6xi32>
  %p = linalg.matmul ins(%a, %b : tensor<5x24xi8>, tensor<24x6xi8>) outs(%f : tensor<5x6xi32>) -> tensor<5x6xi32>
  return %p : tensor<5x6xi32>
}
