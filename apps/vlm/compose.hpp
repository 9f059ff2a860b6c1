// SPDX-License-Identifier: Apache-2.0
// Composes the vision-language app: corpus -> vision -> projector -> llm; and the app for models that also hear, with
// corpus -> audio -> audio_projector -> llm.
//
// HI-1 (encoders by need): a sample may have images, sounds, both or none, and enters only the encoders that read what
//       it has. Rows of each kind take the positions of its tokens, in order; another number of rows is refused by the
//       sample's number.
// HI-2 (positions): an image's rows have positions on three axes, a sound's rows stand like tokens of a text, as
//       get_rope_index() in transformers states for Qwen2.5-Omni.
// HI-3 (complete model): of a complete Qwen2.5-Omni the thinker is trained; the tensors of talker and token2wav come
// out
//       bit for bit.
// HI-4 (same bits): one process and several have the same losses.
#pragma once

#include "actors/process/app.hpp"

namespace maestro {

/// Composes a vision encoder, a projector and a decoder for conversations about images. The sections vision, projector
/// and llm are trained unless their table has `trained = false`; gradients pass through frozen sections to trained
/// sections before them. Samples without images never enter vision and projector.
void compose_vision_language(App& app);

/// Composes the same with an encoder of sounds and its projector, the sections audio and audio_projector. A sample may
/// have images, sounds, both or none: it enters only the encoders of what it has.
void compose_omni(App& app);

}  // namespace maestro
