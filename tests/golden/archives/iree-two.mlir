module @two_mod {
  func.func @two(%a: tensor<?x5xf32>, %b: tensor<5x3xf32>) -> (tensor<?x3xf32>, tensor<?x5xi32>) {
    %c0 = arith.constant 0 : index
    %d = tensor.dim %a, %c0 : tensor<?x5xf32>
    %z = arith.constant 0.0 : f32
    %e = tensor.empty(%d) : tensor<?x3xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x3xf32>) -> tensor<?x3xf32>
    %m = linalg.matmul ins(%a, %b : tensor<?x5xf32>, tensor<5x3xf32>) outs(%f : tensor<?x3xf32>) -> tensor<?x3xf32>
    %w = arith.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
    %ei = tensor.empty(%d) : tensor<?x5xi32>
    %i = linalg.generic {indexing_maps = [affine_map<(i,j) -> (i,j)>, affine_map<(i,j) -> (i,j)>], iterator_types = ["parallel","parallel"]} ins(%a : tensor<?x5xf32>) outs(%ei : tensor<?x5xi32>) {
      ^bb1(%in: f32, %out: i32):
        %s = arith.fptosi %in : f32 to i32
        linalg.yield %s : i32
    } -> tensor<?x5xi32>
    return %m, %i : tensor<?x3xf32>, tensor<?x5xi32>
  }
}
