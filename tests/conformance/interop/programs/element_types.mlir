// One computation per element type that crosses the border of a module.

func.func @i1(%a: tensor<9xi1>, %b: tensor<9xi1>) -> tensor<9xi1> {
  %r = arith.xori %a, %b : tensor<9xi1>
  return %r : tensor<9xi1>
}
func.func @i8(%a: tensor<9xi8>, %b: tensor<9xi8>) -> tensor<9xi8> {
  %r = arith.muli %a, %b : tensor<9xi8>
  return %r : tensor<9xi8>
}
func.func @i16(%a: tensor<9xi16>, %b: tensor<9xi16>) -> tensor<9xi16> {
  %r = arith.subi %a, %b : tensor<9xi16>
  return %r : tensor<9xi16>
}
func.func @i32(%a: tensor<9xi32>, %b: tensor<9xi32>) -> tensor<9xi32> {
  %r = arith.maxsi %a, %b : tensor<9xi32>
  return %r : tensor<9xi32>
}
func.func @i64(%a: tensor<9xi64>, %b: tensor<9xi64>) -> tensor<9xi64> {
  %r = arith.muli %a, %b : tensor<9xi64>
  return %r : tensor<9xi64>
}
func.func @f16(%a: tensor<9xf16>, %b: tensor<9xf16>) -> tensor<9xf16> {
  %r = arith.mulf %a, %b : tensor<9xf16>
  return %r : tensor<9xf16>
}
func.func @bf16(%a: tensor<9xbf16>, %b: tensor<9xbf16>) -> tensor<9xbf16> {
  %r = arith.addf %a, %b : tensor<9xbf16>
  return %r : tensor<9xbf16>
}
func.func @f32(%a: tensor<9xf32>, %b: tensor<9xf32>) -> tensor<9xf32> {
  %r = arith.divf %a, %b : tensor<9xf32>
  return %r : tensor<9xf32>
}
func.func @f64(%a: tensor<9xf64>, %b: tensor<9xf64>) -> tensor<9xf64> {
  %r = arith.divf %a, %b : tensor<9xf64>
  return %r : tensor<9xf64>
}
func.func @f8E4M3FN(%a: tensor<9xf8E4M3FN>) -> tensor<9xf32> {
  %r = arith.extf %a : tensor<9xf8E4M3FN> to tensor<9xf32>
  return %r : tensor<9xf32>
}
func.func @f8E5M2(%a: tensor<9xf8E5M2>) -> tensor<9xf32> {
  %r = arith.extf %a : tensor<9xf8E5M2> to tensor<9xf32>
  return %r : tensor<9xf32>
}
func.func @to_f8E5M2(%a: tensor<9xf32>) -> tensor<9xf8E5M2> {
  %r = arith.truncf %a : tensor<9xf32> to tensor<9xf8E5M2>
  return %r : tensor<9xf8E5M2>
}
func.func @complex64(%a: tensor<9xcomplex<f32>>, %b: tensor<9xcomplex<f32>>) -> tensor<9xcomplex<f32>> {
  %r = stablehlo.multiply %a, %b : tensor<9xcomplex<f32>>
  return %r : tensor<9xcomplex<f32>>
}
func.func @complex128(%a: tensor<9xcomplex<f64>>, %b: tensor<9xcomplex<f64>>) -> tensor<9xcomplex<f64>> {
  %r = stablehlo.add %a, %b : tensor<9xcomplex<f64>>
  return %r : tensor<9xcomplex<f64>>
}
func.func @widen_i4(%a: tensor<8xi4>) -> tensor<8xi8> {
  %r = arith.extsi %a : tensor<8xi4> to tensor<8xi8>
  return %r : tensor<8xi8>
}
