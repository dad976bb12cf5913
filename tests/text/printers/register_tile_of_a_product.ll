target triple = "x86_64-unknown-unknown-eabi-elf"
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr ptr, ptr %v2, i64 2
  %v7 = load ptr, ptr %v6, align 8
  br label %loop8
loop8:
  %i9 = phi i64 [ 0, %entry ], [ %i9.next, %loop8 ]
  %p14 = phi ptr [ %v3, %entry ], [ %p14.next, %loop8 ]
  %p18 = phi ptr [ %v5, %entry ], [ %p18.next, %loop8 ]
  %r10 = phi <8 x float> [ zeroinitializer, %entry ], [ %v20, %loop8 ]
  %r11 = phi <8 x float> [ zeroinitializer, %entry ], [ %v23, %loop8 ]
  %r12 = phi <8 x float> [ zeroinitializer, %entry ], [ %v28, %loop8 ]
  %r13 = phi <8 x float> [ zeroinitializer, %entry ], [ %v29, %loop8 ]
  %v15 = load float, ptr %p14, align 4
  %v16 = insertelement <8 x float> poison, float %v15, i64 0
  %v17 = shufflevector <8 x float> %v16, <8 x float> poison, <8 x i32> zeroinitializer
  %v19 = load <8 x float>, ptr %p18, align 4
  %v20 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v17, <8 x float> %v19, <8 x float> %r10)
  %v21 = getelementptr float, ptr %p18, i64 8
  %v22 = load <8 x float>, ptr %v21, align 4
  %v23 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v17, <8 x float> %v22, <8 x float> %r11)
  %v24 = getelementptr float, ptr %p14, i64 64
  %v25 = load float, ptr %v24, align 4
  %v26 = insertelement <8 x float> poison, float %v25, i64 0
  %v27 = shufflevector <8 x float> %v26, <8 x float> poison, <8 x i32> zeroinitializer
  %v28 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v27, <8 x float> %v19, <8 x float> %r12)
  %v29 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v27, <8 x float> %v22, <8 x float> %r13)
  %p14.next = getelementptr float, ptr %p14, i64 1
  %p18.next = getelementptr float, ptr %p18, i64 16
  %i9.next = add nuw nsw i64 %i9, 1
  %again9 = icmp slt i64 %i9.next, 64
  br i1 %again9, label %loop8, label %done30
done30:
  store <8 x float> %v20, ptr %v7, align 4
  %v31 = getelementptr float, ptr %v7, i64 8
  store <8 x float> %v23, ptr %v31, align 4
  %v32 = getelementptr float, ptr %v7, i64 16
  store <8 x float> %v28, ptr %v32, align 4
  %v33 = getelementptr float, ptr %v7, i64 24
  store <8 x float> %v29, ptr %v33, align 4
  ret i32 0
}
