// The sentence embedding of a list of token ids, computed by an exported model through its C++ class.
//
//   tilewright compile all-MiniLM-L6-v2.onnx -o libminilm.so --header minilm.hpp
//   c++ -std=c++17 embed.cpp -L. -lminilm -Wl,-rpath,'$ORIGIN' -o embed
//   ./embed 101 7592 2088 102
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "minilm.hpp"

int main(int argc, char** argv) {
  std::vector<std::int64_t> ids;
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    ids.push_back(std::strtoll(argv[i], &end, 10));
    if (end == argv[i] || *end != '\0') {
      std::fprintf(stderr, "embed: expected token ids, which are whole numbers\n");
      return EXIT_FAILURE;
    }
  }
  const std::vector<std::int64_t> mask(ids.size(), 1);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  try {
    tilewright::minilm::Options options{};
    options.threads = 1;
    const tilewright::minilm::Model model(options);
    const auto outputs = model({
        tilewright::minilm::view(ids.data(), {1, tokens}),
        tilewright::minilm::view(mask.data(), {1, tokens}),
    });
    const auto& embedding = outputs[MINILM_OUTPUT_SENTENCE_EMBEDDING];
    for (std::int64_t i = 0; i < embedding.shape()[1]; ++i) std::printf("%.9g\n", embedding.data<float>()[i]);
  } catch (const tilewright::minilm::Error& error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
