// SPDX-License-Identifier: Apache-2.0
// How the model in a folder turns the tiles of an image into rows.
#pragma once

#include <filesystem>

#include "runtime/core/modality.hpp"
#include "runtime/images/image_settings.hpp"

namespace maestro {

/// Reads the config.json of a folder with a vision part (vision_part.hpp). Errors (invalid_argument, not_found) name
/// the file and the key: a model of another type, as parse_vision_part, canvases that differ from those in the folder's
/// image settings.
[[nodiscard]] Result<EncoderGrid> read_encoder_grid(const std::filesystem::path& folder);

/// Reads the id of the token that stands for a row of an image in a text: image_token_id or image_token_index of
/// config.json; `modality` chooses a token if the model reads sounds, too. Errors as read_encoder_grid.
[[nodiscard]] Result<std::int64_t> read_image_token(const std::filesystem::path& folder,
                                                    Modality modality = Modality::image);

}  // namespace maestro
