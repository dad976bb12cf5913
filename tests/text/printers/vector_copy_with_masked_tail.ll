target triple = "x86_64-unknown-unknown-eabi-elf"
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 24
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load i32, ptr %v2, align 4
  %v4 = zext i32 %v3 to i64
  %v5 = getelementptr i8, ptr %dispatch, i64 32
  %v6 = load ptr, ptr %v5, align 8
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr ptr, ptr %v6, i64 1
  %v9 = load ptr, ptr %v8, align 8
  %v10 = add i64 %v4, 7
  %v11 = ashr i64 %v10, 3
  br label %loop12
loop12:
  %i13 = phi i64 [ 0, %entry ], [ %i13.next, %rest54 ]
  %n14 = phi i64 [ 0, %entry ], [ %n14.next, %rest54 ]
  %p22 = phi ptr [ %v7, %entry ], [ %p22.next, %rest54 ]
  %p24 = phi ptr [ %v9, %entry ], [ %p24.next, %rest54 ]
  %v15 = add i64 %v4, %n14
  %v16 = call i64 @llvm.smin.i64(i64 %v15, i64 8)
  %v17 = call i64 @llvm.smax.i64(i64 %v16, i64 0)
  %v18 = trunc i64 %v17 to i32
  %v19 = insertelement <8 x i32> poison, i32 %v18, i64 0
  %v20 = shufflevector <8 x i32> %v19, <8 x i32> poison, <8 x i32> zeroinitializer
  %v21 = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %v20
  %v23 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p22, <8 x i1> %v21, <8 x float> zeroinitializer)
  %v25 = and i32 %v18, 8
  %v26 = icmp ne i32 %v25, 0
  br i1 %v26, label %piece27, label %rest28
piece27:
  store <8 x float> %v23, ptr %p24, align 1
  br label %rest28
rest28:
  %v29 = shufflevector <8 x float> %v23, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v30 = shufflevector <8 x float> %v23, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v31 = and i32 %v18, -8
  %v32 = getelementptr float, ptr %p24, i32 %v31
  %v33 = and i32 %v18, 4
  %v34 = icmp ne i32 %v33, 0
  br i1 %v34, label %piece35, label %rest36
piece35:
  store <4 x float> %v29, ptr %v32, align 1
  br label %rest36
rest36:
  %m37 = phi <4 x float> [ %v29, %rest28 ], [ %v30, %piece35 ]
  %v38 = shufflevector <4 x float> %m37, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v39 = shufflevector <4 x float> %m37, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v40 = and i32 %v18, -4
  %v41 = getelementptr float, ptr %p24, i32 %v40
  %v42 = and i32 %v18, 2
  %v43 = icmp ne i32 %v42, 0
  br i1 %v43, label %piece44, label %rest45
piece44:
  store <2 x float> %v38, ptr %v41, align 1
  br label %rest45
rest45:
  %m46 = phi <2 x float> [ %v38, %rest36 ], [ %v39, %piece44 ]
  %v47 = extractelement <2 x float> %m46, i64 0
  %v48 = extractelement <2 x float> %m46, i64 1
  %v49 = and i32 %v18, -2
  %v50 = getelementptr float, ptr %p24, i32 %v49
  %v51 = and i32 %v18, 1
  %v52 = icmp ne i32 %v51, 0
  br i1 %v52, label %piece53, label %rest54
piece53:
  store float %v47, ptr %v50, align 1
  br label %rest54
rest54:
  %n14.next = add i64 %n14, -8
  %p22.next = getelementptr float, ptr %p22, i64 8
  %p24.next = getelementptr float, ptr %p24, i64 8
  %i13.next = add nuw nsw i64 %i13, 1
  %again13 = icmp slt i64 %i13.next, %v11
  br i1 %again13, label %loop12, label %done55
done55:
  ret i32 0
}
