util.global private mutable @w0 = #stream.parameter.named<"model"::"w0"> : tensor<7x5xf32>
util.global private mutable @w2 = #stream.parameter.named<"model"::"w2"> : tensor<3x7xi16>
func.func @bump() -> tensor<7x5xf32> {
  %w0 = util.global.load @w0 : tensor<7x5xf32>
  %e = tensor.empty() : tensor<7x5xf32>
  %r = linalg.generic {indexing_maps=[affine_map<(i,j)->(i,j)>,affine_map<(i,j)->(i,j)>],iterator_types=["parallel","parallel"]} ins(%w0 : tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) { ^bb0(%p: f32, %o: f32): %s = arith.addf %p, %p : f32 linalg.yield %s : f32 } -> tensor<7x5xf32>
  util.global.store %r, @w0 : tensor<7x5xf32>
  return %r : tensor<7x5xf32>
}
func.func @get_w2() -> tensor<3x7xi16> {
  %w2 = util.global.load @w2 : tensor<3x7xi16>
  return %w2 : tensor<3x7xi16>
}
