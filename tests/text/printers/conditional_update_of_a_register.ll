target triple = "x86_64-unknown-unknown-eabi-elf"
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  br label %loop6
loop6:
  %i7 = phi i64 [ 0, %entry ], [ %i7.next, %join13 ]
  %p9 = phi ptr [ %v3, %entry ], [ %p9.next, %join13 ]
  %r8 = phi float [ 0x0000000000000000, %entry ], [ %m14, %join13 ]
  %v10 = load float, ptr %p9, align 4
  %v11 = fcmp ogt float %v10, %r8
  br i1 %v11, label %then12, label %join13
then12:
  br label %join13
join13:
  %m14 = phi float [ %r8, %loop6 ], [ %v10, %then12 ]
  %p9.next = getelementptr float, ptr %p9, i64 1
  %i7.next = add nuw nsw i64 %i7, 1
  %again7 = icmp slt i64 %i7.next, 16
  br i1 %again7, label %loop6, label %done15
done15:
  store float %m14, ptr %v5, align 4
  ret i32 0
}
