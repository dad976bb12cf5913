target triple = "x86_64-unknown-unknown-eabi-elf"
define hidden i32 @kernel(ptr %environment, ptr %dispatch, ptr %workgroup) nounwind "no-builtins" {
entry:
  %v1 = getelementptr i8, ptr %dispatch, i64 32
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr ptr, ptr %v2, i64 1
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr ptr, ptr %v2, i64 2
  %v7 = load ptr, ptr %v6, align 8
  %v8 = load <2 x i32>, ptr %v5, align 4
  %v9 = sext <2 x i32> %v8 to <2 x i64>
  %v10 = mul <2 x i64> %v9, splat (i64 1)
  %v11 = add <2 x i64> %v10, zeroinitializer
  %v12 = getelementptr float, ptr %v3, <2 x i64> %v11
  %v13 = extractelement <2 x ptr> %v12, i64 0
  %v14 = load float, ptr %v13, align 4
  %v15 = extractelement <2 x ptr> %v12, i64 1
  %v16 = load float, ptr %v15, align 4
  %v17 = insertelement <2 x float> poison, float %v14, i64 0
  %v18 = insertelement <2 x float> %v17, float %v16, i64 1
  store <2 x float> %v18, ptr %v7, align 4
  ret i32 0
}
