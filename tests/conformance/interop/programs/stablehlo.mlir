// Operations of StableHLO that become several kernels, or loops on the host.

func.func @loop(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %t = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %u = stablehlo.cosine %t : tensor<4xf32>
    stablehlo.return %j, %u : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}

func.func @select_branch(%which: tensor<i32>, %x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %r = "stablehlo.case"(%which) ({
    %a = stablehlo.exponential %x : tensor<3x2xf32>
    stablehlo.return %a : tensor<3x2xf32>
  }, {
    %a = stablehlo.tanh %x : tensor<3x2xf32>
    stablehlo.return %a : tensor<3x2xf32>
  }, {
    stablehlo.return %x : tensor<3x2xf32>
  }) : (tensor<i32>) -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}

func.func @convolve(%x: tensor<1x9x9x3xf32>, %w: tensor<3x3x3x5xf32>) -> tensor<1x5x5x5xf32> {
  %r = stablehlo.convolution(%x, %w)
      dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [2, 2], pad = [[1, 1], [1, 1]]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x9x9x3xf32>, tensor<3x3x3x5xf32>) -> tensor<1x5x5x5xf32>
  return %r : tensor<1x5x5x5xf32>
}

func.func @attention(%q: tensor<2x7x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>)
    -> tensor<2x7x8xf32> {
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<2x7x8xf32>, tensor<2x7x8xf32>) -> tensor<2x7x7xf32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%s init: %lowest) applies stablehlo.maximum across dimensions = [2]
      : (tensor<2x7x7xf32>, tensor<f32>) -> tensor<2x7xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : (tensor<2x7xf32>) -> tensor<2x7x7xf32>
  %d = stablehlo.subtract %s, %mb : tensor<2x7x7xf32>
  %e = stablehlo.exponential %d : tensor<2x7x7xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
      : (tensor<2x7x7xf32>, tensor<f32>) -> tensor<2x7xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<2x7xf32>) -> tensor<2x7x7xf32>
  %p = stablehlo.divide %e, %tb : tensor<2x7x7xf32>
  %r = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<2x7x7xf32>, tensor<2x7x8xf32>) -> tensor<2x7x8xf32>
  return %r : tensor<2x7x8xf32>
}

func.func @sort(%x: tensor<11xi32>) -> tensor<11xi32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %less = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<11xi32>) -> tensor<11xi32>
  return %r : tensor<11xi32>
}

func.func @gather(%x: tensor<6x3xf32>, %i: tensor<4x1xi32>) -> tensor<4x3xf32> {
  %r = "stablehlo.gather"(%x, %i) <{
    dimension_numbers = #stablehlo.gather<
      offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 3>}> : (tensor<6x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}

func.func @scatter(%x: tensor<6xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {
    scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
    unique_indices = false} : (tensor<6xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<6xf32>
  return %r : tensor<6xf32>
}

func.func @spectrum(%x: tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>> {
  %r = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>>
  return %r : tensor<2x5xcomplex<f32>>
}

func.func @random(%seed: tensor<2xui64>) -> (tensor<2xui64>, tensor<9xui32>) {
  %r:2 = stablehlo.rng_bit_generator %seed, algorithm = THREE_FRY
      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<9xui32>)
  return %r#0, %r#1 : tensor<2xui64>, tensor<9xui32>
}

func.func @pair(%x: tensor<3xf32>) -> tuple<tensor<3xf32>, tensor<3xf32>> {
  %a = stablehlo.add %x, %x : tensor<3xf32>
  %r = stablehlo.tuple %x, %a : tuple<tensor<3xf32>, tensor<3xf32>>
  return %r : tuple<tensor<3xf32>, tensor<3xf32>>
}

func.func @narrow_integers(%x: tensor<5x3xi8>, %w: tensor<3x4xi8>) -> tensor<5x4xi32> {
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<5x3xi8>, tensor<3x4xi8>) -> tensor<5x4xi32>
  return %r : tensor<5x4xi32>
}

func.func @half_product(%x: tensor<5x3xf16>, %w: tensor<3x4xf16>) -> tensor<5x4xf32> {
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<5x3xf16>, tensor<3x4xf16>) -> tensor<5x4xf32>
  return %r : tensor<5x4xf32>
}
