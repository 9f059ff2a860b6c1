// SPDX-License-Identifier: Apache-2.0
// Fuzz target for conversations about images: every valid row becomes tokens.
#include <algorithm>
#include <sstream>

#include "fuzz_target.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/dataset/document_encoder.hpp"
#include "runtime/dataset/record_format.hpp"

namespace maestro::fuzz {
namespace {

constexpr ImageSize two_patches{16, 8};

DocumentEncoder made_encoder() {
  PrepareOptions options;
  options.chat_template = "auto";
  options.scaled = ScaledTile{8, 0, 1024};
  return DocumentEncoder(options);
}

void use(const Record& record) {
  static const DocumentEncoder encoder = made_encoder();
  require(record.images.size() == record.image_messages.size(), "images are in messages");
  const ImageModel& images = *encoder.images();
  const std::vector<ImagePlan> plans(record.images.size(), images.processor.plan(two_patches).value_or_throw());
  RowNotes notes;
  const Result<std::vector<Document>> documents = encoder.encode(record, notes, plans);
  if (!accepted(documents)) return;
  for (const Document& document : *documents) {
    require(document.learned.size() == document.tokens.size(), "every token has a flag");
    require(std::ranges::count(document.learned, 1) > 0, "a conversation has targets");
    require(document.images <= plans.size(), "no image is added");
    require(std::ranges::count(document.tokens, images.expander.image_token()) ==
                2 * static_cast<std::ptrdiff_t>(document.images),
            "an image has a token for each patch");
    require(std::ranges::max(document.tokens) <= images.expander.image_token(), "no other token is added");
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  std::istringstream text{std::string(fuzz::text_of(data, size))};
  fuzz::accepted(parse_json_list({text, "conversations.json", "conversations"}, [](const nlohmann::json& row) {
    const Result<RecordFormat> format = RecordFormat::of(row, "", ImagesOfRows::spaced);
    if (!fuzz::accepted(format) || !format->is_chat()) return;
    const Result<Record> record = format->read(row, row.dump());
    if (fuzz::accepted(record)) fuzz::use(*record);
  }));
  return 0;
}
