// Several results of several types, one of them an operand and one a slice.
func.func @main(%x: tensor<6x4xf32>, %n: i32) -> (tensor<6x4xf32>, tensor<2x4xf32>, tensor<4xf32>, i32, tensor<6x4xi32>) {
  %zero = arith.constant 0.0 : f32
  %part = tensor.extract_slice %x[3, 0] [2, 4] [1, 1] : tensor<6x4xf32> to tensor<2x4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(j, i) -> (i, j)>, affine_map<(j, i) -> (j)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<6x4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%v: f32, %acc: f32):
    %t = arith.addf %v, %acc : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  %k = arith.muli %n, %n : i32
  %i = arith.fptosi %x : tensor<6x4xf32> to tensor<6x4xi32>
  return %x, %part, %s, %k, %i : tensor<6x4xf32>, tensor<2x4xf32>, tensor<4xf32>, i32, tensor<6x4xi32>
}
