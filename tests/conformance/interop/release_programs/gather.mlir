// Rows by number: a kernel that reads where its operand says.
func.func @main(%x: tensor<6x3xf32>, %i: tensor<4xi32>) -> tensor<4x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<4xi32>) outs(%e : tensor<4x3xf32>) {
  ^bb0(%at: i32, %out: f32):
    %row = arith.index_cast %at : i32 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %x[%row, %column] : tensor<6x3xf32>
    linalg.yield %v : f32
  } -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}
