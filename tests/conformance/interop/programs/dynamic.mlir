// Shapes that calls decide: products, sums, joins, slices, sizes that are zero.

func.func @matmul(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)
                     outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

func.func @row_sums(%a: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %e = tensor.empty(%m) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%x: f32, %acc: f32):
    %s = arith.addf %x, %acc : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

func.func @join(%a: tensor<?x3xi64>, %b: tensor<?x3xi64>) -> tensor<?x3xi64> {
  %r = tensor.concat dim(0) %a, %b : (tensor<?x3xi64>, tensor<?x3xi64>) -> tensor<?x3xi64>
  return %r : tensor<?x3xi64>
}

func.func @window(%a: tensor<?xf32>, %from: index, %count: index) -> tensor<?xf32> {
  %r = tensor.extract_slice %a[%from] [%count] [1] : tensor<?xf32> to tensor<?xf32>
  %s = arith.addf %r, %r : tensor<?xf32>
  return %s : tensor<?xf32>
}

func.func @element(%a: tensor<?x?xf64>, %i: index, %j: index) -> f64 {
  %r = tensor.extract %a[%i, %j] : tensor<?x?xf64>
  return %r : f64
}

func.func @shape(%a: tensor<?x?xf32>) -> (index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  return %m, %n : index, index
}

func.func @same(%a: tensor<?xf32>) -> tensor<?xf32> {
  return %a : tensor<?xf32>
}
