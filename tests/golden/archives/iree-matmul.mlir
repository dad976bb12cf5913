module @mm_mod {
  func.func @mm(%a: tensor<13x29xf32>, %b: tensor<29x7xf32>, %c: tensor<13x7xf32>) -> tensor<13x7xf32> {
    %m = linalg.matmul ins(%a, %b : tensor<13x29xf32>, tensor<29x7xf32>) outs(%c : tensor<13x7xf32>) -> tensor<13x7xf32>
    return %m : tensor<13x7xf32>
  }
  func.func @mmi(%a: tensor<13x29xi8>, %b: tensor<29x7xi8>, %c: tensor<13x7xi32>) -> tensor<13x7xi32> {
    %m = linalg.matmul ins(%a, %b : tensor<13x29xi8>, tensor<29x7xi8>) outs(%c : tensor<13x7xi32>) -> tensor<13x7xi32>
    return %m : tensor<13x7xi32>
  }
}
