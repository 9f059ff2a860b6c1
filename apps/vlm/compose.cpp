// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/compose.hpp"

#include "runtime/model/hf_vision_config.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

namespace {

/// Composes the app, with sections for sounds if `hears`.
void compose(App& app, bool hears) {
  auto& data = app.source("corpus");
  auto& vision = app.section("vision", "vision_encoder");
  auto& projector = app.section("projector", "projector");
  if (hears) {
    app.section("audio", "audio_encoder").hears();
    app.section("audio_projector", "audio_projector").hears();
  }
  auto& llm = app.section("llm", "vision_language_decoder");
  app.connect(data.port("pixels"), vision.port("pixels"));
  app.connect(data.port("places"), vision.port("places"));
  app.connect(vision.port("features"), projector.port("features"));
  app.connect_where_present(data.port("places"), projector.port("places"));
  app.connect_where_present(data.port("sources"), projector.port("sources"));
  app.connect_where_present(data.port("weights"), projector.port("weights"));
  app.connect(projector.port("visual"), llm.port("visual"));
  for (std::int64_t tap = 0; tap < most_taps; ++tap) {
    const std::string features = tap_name("features", tap), visual = tap_name("visual", tap);
    app.connect_where_present(vision.port(features), projector.port(features));
    app.connect_where_present(projector.port(visual), llm.port(visual));
  }
  if (hears) {
    const auto port = [](const char* section, const char* name) { return PortRef{section, name}; };
    app.connect(data.port("pixels"), port("audio", "pixels"));
    app.connect(data.port("places"), port("audio", "places"));
    app.connect(port("audio", "features"), port("audio_projector", "features"));
    app.connect_where_present(data.port("places"), port("audio_projector", "places"));
    app.connect(port("audio_projector", "visual"), llm.port("heard"));
  }
  app.connect(data.port("tokens"), llm.port("tokens"));
  app.connect(data.port("targets"), llm.port("targets"));
  app.connect_where_present(data.port("marks"), llm.port("marks"));
}

}  // namespace

void compose_vision_language(App& app) {
  compose(app, false);
}

void compose_omni(App& app) {
  compose(app, true);
}

}  // namespace maestro
