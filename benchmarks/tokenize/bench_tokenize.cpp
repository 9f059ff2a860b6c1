// SPDX-License-Identifier: Apache-2.0
// Times a tokenizer on a core: bench_tokenize TOKENIZER FILE ROUNDS. FILE holds texts separated by NUL bytes; the best
// round counts. Prints a JSON line with the number of tokens and a checksum of their ids, for comparisons.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(const char* tokenizer_file, const char* text_file, int rounds) {
  const std::string texts = read_text(text_file, std::size_t{1} << 30).value_or_throw();
  const auto opening = std::chrono::steady_clock::now();
  const auto tokenizer = open_tokenizer(tokenizer_file).value_or_throw();
  nlohmann::json row = {{"program", "maestro"}, {"open_ms", 1000 * seconds_since(opening)}};
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t tokens = 0, checksum = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (std::string_view rest = texts; !rest.empty();) {
      const std::string_view text = rest.substr(0, rest.find('\0'));
      for (const std::int32_t id : tokenizer->encode(text)) {
        checksum = checksum * 31 + static_cast<std::uint64_t>(id);
        ++tokens;
      }
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    }
    const double seconds = seconds_since(begin);
    best = round == 0 ? seconds : std::min(best, seconds);
    row["tokens"] = tokens;
    row["checksum"] = checksum;
  }
  row["seconds"] = best;
  std::printf("%s\n", row.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace maestro

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw maestro::JobError("usage: bench_tokenize TOKENIZER FILE ROUNDS");
    return maestro::run(argv[1], argv[2], std::max(1, std::atoi(argv[3])));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_tokenize: %s\n", problem.what());
    return 2;
  }
}
