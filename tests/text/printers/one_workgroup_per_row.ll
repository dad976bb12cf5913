target triple = "x86_64-unknown-unknown-eabi-elf"
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  %v6 = load i32, ptr %workgroup, align 4
  %v7 = zext i32 %v6 to i64
  %v10 = mul i64 %v7, 100
  %v11 = getelementptr float, ptr %v3, i64 %v10
  %v15 = getelementptr float, ptr %v5, i64 %v10
  br label %loop8
loop8:
  %i9 = phi i64 [ 0, %entry ], [ %i9.next, %loop8 ]
  %p12 = phi ptr [ %v11, %entry ], [ %p12.next, %loop8 ]
  %p16 = phi ptr [ %v15, %entry ], [ %p16.next, %loop8 ]
  %v13 = load float, ptr %p12, align 4
  %v14 = fneg float %v13
  store float %v14, ptr %p16, align 4
  %p12.next = getelementptr float, ptr %p12, i64 1
  %p16.next = getelementptr float, ptr %p16, i64 1
  %i9.next = add nuw nsw i64 %i9, 1
  %again9 = icmp slt i64 %i9.next, 100
  br i1 %again9, label %loop8, label %done17
done17:
  ret i32 0
}
