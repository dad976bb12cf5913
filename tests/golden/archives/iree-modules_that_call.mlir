// Three modules; each but the first calls functions of those before.  One file each for the compiler:
// the parts between the dashed lines.

// library -----
module @library {
  util.global private mutable @count = 0 : i32

  func.func @square(%x: tensor<?xf32>) -> tensor<?xf32> {
    %one = arith.constant 1 : i32
    %called = util.global.load @count : i32
    %more = arith.addi %called, %one : i32
    util.global.store %more, @count : i32
    %y = arith.mulf %x, %x : tensor<?xf32>
    return %y : tensor<?xf32>
  }

  func.func @called() -> i32 {
    %called = util.global.load @count : i32
    return %called : i32
  }
}
// caller -----
module @caller {
  func.func private @library.square(%x: tensor<?xf32>) -> tensor<?xf32>

  func.func @run(%x: tensor<?xf32>) -> tensor<?xf32> {
    %y = call @library.square(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %z = arith.addf %y, %x : tensor<?xf32>
    return %z : tensor<?xf32>
  }

  func.func @called(%x: tensor<?xf32>) -> tensor<?xf32> {
    return %x : tensor<?xf32>
  }
}
// top -----
module @top {
  func.func private @library.called() -> i32
  func.func private @caller.run(%x: tensor<?xf32>) -> tensor<?xf32>

  func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<1xi32>) {
    %y = call @caller.run(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %z = call @caller.run(%y) : (tensor<?xf32>) -> tensor<?xf32>
    %called = call @library.called() : () -> i32
    %count = tensor.from_elements %called : tensor<1xi32>
    return %z, %count : tensor<?xf32>, tensor<1xi32>
  }
}
