// SPDX-License-Identifier: Apache-2.0
// The kinds of input that a model may read in addition to text.
#pragma once

#include <array>
#include <cstdint>

namespace maestro {

enum class Modality : std::uint8_t { image, sound };
inline constexpr std::array<Modality, 2> modalities{Modality::image, Modality::sound};

}  // namespace maestro
