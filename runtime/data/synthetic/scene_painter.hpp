// SPDX-License-Identifier: Apache-2.0
// Small images of coloured figures on a gray background.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/images/image.hpp"

namespace maestro {

struct SceneColour {
  std::string_view name;
  std::array<std::uint8_t, 3> rgb;
};

/// Colours of equal brightness: their channels sum to 500, the gray background's to 288. So the sum shows a figure in
/// any colour, which a model learns sooner from few images.
inline constexpr std::array<SceneColour, 6> scene_colours{{{"red", {255, 122, 123}},
                                                           {"green", {123, 255, 122}},
                                                           {"blue", {122, 123, 255}},
                                                           {"yellow", {240, 240, 20}},
                                                           {"cyan", {20, 240, 240}},
                                                           {"pink", {240, 20, 240}}}};

/// Figures 0 to 3 are shapes; the next ten are the digits 0 to 9.
inline constexpr std::array<std::string_view, 4> scene_shapes{"circle", "square", "triangle", "cross"};
inline constexpr std::size_t scene_figures = scene_shapes.size() + 10;

/// A figure in units of the image's side, with the origin at the top left.
struct SceneObject {
  std::size_t figure = 0;
  std::size_t colour = 0;
  double x = 0.5;  ///< centre
  double y = 0.5;
  double radius = 0.2;  ///< half the side of the square around the figure
};

/// Returns a square image of `side` pixels with smooth edges; later objects cover earlier objects. Pure; any thread.
[[nodiscard]] Image paint_scene(std::span<const SceneObject> objects, std::int64_t side);

}  // namespace maestro
