
int @NAME@_prepare(@NAME@* model, const int64_t dims[]) { return prepare(model, dims); }

int @NAME@_input_shape(@NAME@* model, const int64_t dims[], uint32_t input, int64_t out_shape[]) {
  return input_shape(model, dims, input, out_shape);
}

int @NAME@_output_shape(@NAME@* model, const int64_t dims[], uint32_t output, int64_t out_shape[]) {
  return output_shape(model, dims, output, out_shape);
}

int @NAME@_workspace_bytes(@NAME@* model, const int64_t dims[], size_t* out_bytes) {
  return workspace_bytes(model, dims, out_bytes);
}
