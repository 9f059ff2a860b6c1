// SPDX-License-Identifier: Apache-2.0
// Fuzz target for checkpoint.json and run.json. Each input is also read with its checksum corrected, which reaches the
// checks that a damaged file does not.
#include <nlohmann/json.hpp>
#include <optional>

#include "fuzz_target.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro::fuzz {
namespace {

constexpr const char* checksum_key = "self_xxh3_128";

void read(std::string_view text) {
  const Result<Manifest> manifest = parse_manifest(text, "checkpoint.json");
  if (!accepted(manifest)) return;
  static_cast<void>(manifest->sections());
  const std::string written = manifest_text(*manifest);
  const Result<Manifest> again = parse_manifest(written, "written.json");
  require(again.ok(), "a written manifest is a manifest", again.ok() ? "" : again.error().message);
  require(manifest_text(*again) == written && again->files == manifest->files && again->run == manifest->run,
          "a written manifest reads back equal", written);
}

/// Returns the text with a correct checksum; nothing if it is not an object.
std::optional<std::string> with_checksum(std::string_view text) {
  Result<nlohmann::json> object = parse_json(text, "checkpoint.json");
  if (!object || !object->is_object()) return std::nullopt;
  object->erase(checksum_key);
  (*object)[checksum_key] = checksum_of(object->dump());
  return object->dump();
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::read(text);
  if (const auto summed = fuzz::with_checksum(text)) fuzz::read(*summed);
  fuzz::accepted(read_run_identity(fuzz::scratch().write("run.json", text)));
  return 0;
}
