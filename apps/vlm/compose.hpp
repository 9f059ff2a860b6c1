// SPDX-License-Identifier: Apache-2.0
// Composes the vision-language app: corpus -> vision -> projector -> llm.
#pragma once

#include "actors/process/app.hpp"

namespace maestro {

/// Composes a vision encoder, a projector and a decoder for conversations about images. The sections vision, projector
/// and llm are trained unless their table has `trained = false`; gradients pass through frozen sections to trained
/// sections before them. Samples without images never enter vision and projector.
void compose_vision_language(App& app);

}  // namespace maestro
