// Lists and failures: what functions of a module exchange beside tensors.

func.func @sum_of_list(%list: !util.list<?>) -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = util.list.get %list[%c0] : !util.list<?> -> i32
  %b = util.list.get %list[%c1] : !util.list<?> -> i32
  %r = arith.addi %a, %b : i32
  return %r : i32
}

func.func @check_positive(%x: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %ok = arith.cmpi sgt, %x, %zero : i32
  cf.assert %ok, "the number must be positive"
  return %x : i32
}

func.func @make_list(%x: i32, %y: tensor<2xf32>) -> !util.list<?> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %l = util.list.create %c2 : !util.list<?>
  util.list.resize %l, %c2 : !util.list<?>
  util.list.set %l[%c0], %x : i32 -> !util.list<?>
  %v = hal.tensor.export %y : tensor<2xf32> -> !hal.buffer_view
  util.list.set %l[%c1], %v : !hal.buffer_view -> !util.list<?>
  return %l : !util.list<?>
}
