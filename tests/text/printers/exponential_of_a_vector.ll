target triple = "x86_64-unknown-unknown-eabi-elf"
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  %v6 = load <8 x float>, ptr %v3, align 4
  %v7 = fcmp olt <8 x float> splat (float 0x4056400000000000), %v6
  %v8 = select <8 x i1> %v7, <8 x float> splat (float 0x4056400000000000), <8 x float> %v6
  %v9 = fcmp ogt <8 x float> splat (float 0xC05A200000000000), %v8
  %v10 = select <8 x i1> %v9, <8 x float> splat (float 0xC05A200000000000), <8 x float> %v8
  %v11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v10, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %v12 = fsub <8 x float> %v11, splat (float 0x4168001FC0000000)
  %v13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v12, <8 x float> splat (float 0xBFE62E8000000000), <8 x float> %v10)
  %v14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v12, <8 x float> splat (float 0x3EFE8082E0000000), <8 x float> %v13)
  %v15 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A3A4E0000000), <8 x float> %v14, <8 x float> splat (float 0x3F812332C0000000))
  %v16 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v15, <8 x float> %v14, <8 x float> splat (float 0x3FA55589A0000000))
  %v17 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v16, <8 x float> %v14, <8 x float> splat (float 0x3FC5554940000000))
  %v18 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v17, <8 x float> %v14, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %v19 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v18, <8 x float> %v14, <8 x float> splat (float 0x3FF0000000000000))
  %v20 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v19, <8 x float> %v14, <8 x float> splat (float 0x3FF0000000000000))
  %v21 = bitcast <8 x float> %v11 to <8 x i32>
  %v22 = ashr <8 x i32> %v21, splat (i32 1)
  %v23 = shl <8 x i32> %v22, splat (i32 23)
  %v24 = bitcast <8 x i32> %v23 to <8 x float>
  %v25 = fmul <8 x float> %v20, %v24
  %v26 = sub <8 x i32> %v21, %v22
  %v27 = shl <8 x i32> %v26, splat (i32 23)
  %v28 = bitcast <8 x i32> %v27 to <8 x float>
  %v29 = fmul <8 x float> %v25, %v28
  store <8 x float> %v29, ptr %v5, align 4
  ret i32 0
}
