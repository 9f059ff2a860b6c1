// SPDX-License-Identifier: Apache-2.0
// Fuzz target for a run's record and the page and card made from it: the bytes are steps.jsonl and events.jsonl,
// separated by a NUL; without a NUL they are both files.
#include <algorithm>

#include "fuzz_target.hpp"
#include "runtime/page/run_card.hpp"
#include "runtime/page/run_reader.hpp"

namespace maestro::fuzz {
namespace {

const std::filesystem::path& run_folder() {
  static const std::filesystem::path folder = [] {
    std::filesystem::create_directories(scratch().path() / "record");
    return scratch().path();
  }();
  return folder;
}

void read() {
  RunReader reader(run_folder());
  if (!accepted(reader.refresh())) return;
  const RunPage page = reader.page();
  require(!page_of(page).empty() && !card_of(page).empty(), "a record that was read has a page and a card");
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t end = std::min(text.find('\0'), text.size());
  fuzz::run_folder();
  fuzz::scratch().write("record/steps.jsonl", text.substr(0, end));
  fuzz::scratch().write("record/events.jsonl", end == text.size() ? text : text.substr(end + 1));
  fuzz::read();
  return 0;
}
