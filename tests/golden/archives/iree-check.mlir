func.func @ok() { 
  %a = util.unfoldable_constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %b = util.unfoldable_constant dense<[1.0, 2.0, 3.00001]> : tensor<3xf32>
  check.expect_almost_eq(%a, %b, atol 1.0e-04) : tensor<3xf32>
  check.expect_eq(%a, %a) : tensor<3xf32>
  return }
func.func @bad() { 
  %a = util.unfoldable_constant dense<[1, 2, 3]> : tensor<3xi32>
  %b = util.unfoldable_constant dense<[1, 2, 4]> : tensor<3xi32>
  check.expect_eq(%a, %b) : tensor<3xi32>
  return }
func.func @scalars() { 
  %t = util.unfoldable_constant 1 : i32
  %f = util.unfoldable_constant 0 : i32
  check.expect_true(%t) : i32
  check.expect_false(%f) : i32
  %a = util.unfoldable_constant dense<[1, 0, 3]> : tensor<3xi32>
  check.expect_all_true(%a) : tensor<3xi32>
  return }
