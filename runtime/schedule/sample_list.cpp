// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/sample_list.hpp"

#include <charconv>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_samples = 1 << 24;  // samples per step; a damaged count must not fill the memory

std::string item_of(const SampleRef& sample) {
  std::string item = std::to_string(sample.tokens);
  if (sample.patches > 0 || sample.images > 0 || sample.visual > 0) {
    item += '/' + std::to_string(sample.patches) + '/' + std::to_string(sample.images);
    if (sample.visual != sample.patches) item += '/' + std::to_string(sample.visual);
  }
  if (sample.other_patches > 0 || sample.other_tokens > 0) {
    item += '+' + std::to_string(sample.other_patches) + '/' + std::to_string(sample.other_images);
  }
  if (sample.other_tokens > 0) {
    item += '/' + std::to_string(sample.other_visual) + '/' + std::to_string(sample.other_tokens) + '/' +
            std::to_string(sample.answers);
  }
  if (sample.frames > 0) {
    item +=
        '~' + std::to_string(sample.frames) + '/' + std::to_string(sample.clips) + '/' + std::to_string(sample.heard);
  }
  return sample.source > 0 ? item + '@' + std::to_string(sample.source) : item;
}

/// Reads numbers and the signs between them.
class ItemReader {
 public:
  explicit ItemReader(std::string_view text) : rest_(text) {}
  bool number(auto& value) {
    const auto [end, failure] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (failure != std::errc() || value < 0) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  bool sign(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// Reads `item` as `count` samples; returns whether it is valid.
bool read_item(std::string_view item, SampleRef& sample, std::int64_t& count) {
  ItemReader reader(item);
  std::int64_t source = 0;
  if (!reader.number(sample.tokens)) return false;
  if (reader.sign('/')) {
    if (!reader.number(sample.patches) || !reader.sign('/') || !reader.number(sample.images)) return false;
    sample.visual = sample.patches;
    if (reader.sign('/') && !reader.number(sample.visual)) return false;
  }
  const auto further = [&](std::int64_t& value) { return reader.sign('/') && reader.number(value); };
  if (reader.sign('+')) {
    if (!reader.number(sample.other_patches) || !further(sample.other_images)) return false;
    if (reader.sign('/') &&
        !(reader.number(sample.other_visual) && further(sample.other_tokens) && further(sample.answers))) {
      return false;
    }
  }
  if (reader.sign('~') && !(reader.number(sample.frames) && further(sample.clips) && further(sample.heard))) {
    return false;
  }
  if (reader.sign('@') && (!reader.number(source) || source > UINT32_MAX)) return false;
  if (reader.sign('*') && (!reader.number(count) || count < 1)) return false;
  sample.source = static_cast<std::uint32_t>(source);
  return reader.done();
}

}  // namespace

std::string sample_list(std::span<const SampleRef> samples) {
  std::string text;
  for (std::size_t at = 0; at < samples.size();) {
    const std::string item = item_of(samples[at]);
    std::size_t end = at + 1;
    while (end < samples.size() && item_of(samples[end]) == item) ++end;
    if (!text.empty()) text += ' ';
    text += item;
    if (end - at > 1) text += '*' + std::to_string(end - at);
    at = end;
  }
  return text;
}

Result<std::vector<SampleRef>> parse_sample_list(std::string_view text) {
  std::vector<SampleRef> samples;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    SampleRef sample;
    std::int64_t count = 1;
    if (!read_item(item, sample, count) || count > most_samples - static_cast<std::int64_t>(samples.size())) {
      return Error{ErrorCode::corrupt,
                   "\"" + printable(item, 40) +
                       "\" is no sample; expected TOKENS[/PATCHES/IMAGES[/VISUAL]]"
                       "[+PATCHES/IMAGES[/VISUAL/TOKENS/ANSWERS]][~FRAMES/CLIPS/HEARD][@SOURCE][*COUNT]"};
    }
    for (std::int64_t n = 0; n < count; ++n) {
      sample.id = SampleId(samples.size());
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace maestro
