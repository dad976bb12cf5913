// The three least numbers of each row, and where they were.  IREE's compiler sorts in place: its
// kernel writes to the buffer that the function is called with.
func.func @least(%rows: tensor<9x37xf32>) -> (tensor<9x3xf32>, tensor<9x3xi64>) {
  %empty = tensor.empty() : tensor<9x37xi64>
  %columns = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]
  } outs(%empty : tensor<9x37xi64>) {
  ^bb0(%out: i64):
    %j = linalg.index 1 : index
    %column = arith.index_cast %j : index to i64
    linalg.yield %column : i64
  } -> tensor<9x37xi64>
  %sorted:2 = iree_linalg_ext.sort dimension(1)
      outs(%rows, %columns : tensor<9x37xf32>, tensor<9x37xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<9x37xf32>, tensor<9x37xi64>
  %values = tensor.extract_slice %sorted#0[0, 0] [9, 3] [1, 1] : tensor<9x37xf32> to tensor<9x3xf32>
  %places = tensor.extract_slice %sorted#1[0, 0] [9, 3] [1, 1] : tensor<9x37xi64> to tensor<9x3xi64>
  return %values, %places : tensor<9x3xf32>, tensor<9x3xi64>
}
