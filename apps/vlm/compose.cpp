// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/compose.hpp"

#include "runtime/model/hf_vision_config.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

void compose_vision_language(App& app) {
  auto& data = app.source("corpus");
  auto& vision = app.section("vision", "vision_encoder");
  auto& projector = app.section("projector", "projector");
  auto& llm = app.section("llm", "vision_language_decoder");
  app.connect(data.port("pixels"), vision.port("pixels"));
  app.connect(data.port("places"), vision.port("places"));
  app.connect(vision.port("features"), projector.port("features"));
  app.connect_where_present(data.port("sources"), projector.port("sources"));
  app.connect_where_present(data.port("weights"), projector.port("weights"));
  app.connect(projector.port("visual"), llm.port("visual"));
  for (std::int64_t tap = 0; tap < most_taps; ++tap) {
    const std::string features = tap_name("features", tap), visual = tap_name("visual", tap);
    app.connect_where_present(vision.port(features), projector.port(features));
    app.connect_where_present(projector.port(visual), llm.port(visual));
  }
  app.connect(data.port("tokens"), llm.port("tokens"));
  app.connect(data.port("targets"), llm.port("targets"));
  app.connect_where_present(data.port("marks"), llm.port("marks"));
}

}  // namespace maestro
