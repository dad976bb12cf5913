target triple = "x86_64-unknown-unknown-eabi-elf"
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  store float 0x0000000000000000, ptr %v5, align 4
  %v6 = load float, ptr %v5, align 4
  %v7 = load <8 x float>, ptr %v3, align 4
  %v8 = shufflevector <8 x float> %v7, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v9 = shufflevector <8 x float> %v7, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v10 = fadd <4 x float> %v8, %v9
  %v11 = shufflevector <4 x float> %v10, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v12 = shufflevector <4 x float> %v10, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v13 = fadd <2 x float> %v11, %v12
  %v14 = extractelement <2 x float> %v13, i64 0
  %v15 = extractelement <2 x float> %v13, i64 1
  %v16 = fadd float %v14, %v15
  %v17 = fadd float %v6, %v16
  store float %v17, ptr %v5, align 4
  ret i32 0
}
