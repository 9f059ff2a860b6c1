// SPDX-License-Identifier: Apache-2.0
// The vision-language app as a composition: corpus -> vision -> projector -> llm.
#pragma once

#include "actors/process/app.hpp"

namespace maestro {

/// A vision encoder, a projector and a decoder on conversations about pictures. Sections vision, projector and llm are
/// each trained unless their table has `trained = false`; gradients pass frozen sections to trained sections before
/// them. Samples without pictures never enter vision and projector.
void compose_vision_language(App& app);

}  // namespace maestro
