// SPDX-License-Identifier: Apache-2.0
// Fuzz target for config.json of decoders, vision encoders and projectors, adapter_config.json, generation_config.json
// and the index of weights: every reader receives each input.
#include "fuzz_target.hpp"
#include "runtime/model/adapter_config.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/model/hf_tokenizer.hpp"
#include "runtime/model/hf_vision_config.hpp"

namespace maestro::fuzz {
namespace {

/// Returns whether the widths are present; a run sets missing ones before it writes a file.
bool complete(const ProjectorConfig& config) {
  return config.vision_width > 0 && config.width > 0;
}
template <class Config>
bool complete(const Config&) {
  return true;
}

/// Checks that an accepted configuration, once written, reads back as the same text.
template <class Read, class Write>
void check_config(std::string_view text, Read read, Write write) {
  const auto config = read(text, "config.json");
  if (!accepted(config) || !complete(*config)) return;
  const std::string written = write(*config);
  const auto again = read(written, "written.json");
  require(again.ok(), "a written configuration is accepted", again.ok() ? "" : again.error().message);
  require(write(*again) == written, "a written configuration reads back equal", written);
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepted(hf_model_type(text, "config.json"));
  fuzz::check_config(text, parse_hf_config, hf_config_text);
  for (const Modality modality : {Modality::image, Modality::sound}) {
    const auto encoder = [modality](auto config, auto file) { return parse_hf_vision_config(config, file, modality); };
    const auto projector = [modality](auto config, auto file) {
      return parse_hf_projector_config(config, file, modality);
    };
    fuzz::check_config(text, encoder, hf_vision_config_text);
    fuzz::check_config(text, projector, hf_projector_config_text);
  }
  fuzz::check_config(text, parse_adapter_config, adapter_config_text);
  const fuzz::ScratchFolder& folder = fuzz::scratch();
  folder.write("generation_config.json", text);
  fuzz::accepted(read_stop_tokens(folder.path()));
  fuzz::accepted(read_hf_generation(folder.path()));
  fuzz::accepted(read_hf_generation(folder.path(), {.temperature = 0.5, .top_k = {}, .top_p = {}}));
  folder.write(hf_index_file, text);
  fuzz::accepted(read_hf_index(folder.path()));
  return 0;
}
