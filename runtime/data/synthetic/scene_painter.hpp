// SPDX-License-Identifier: Apache-2.0
// Small pictures of coloured figures on gray ground.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/data/image/image.hpp"

namespace maestro {

struct SceneColour {
  std::string_view name;
  std::array<std::uint8_t, 3> rgb;
};

/// Of equal brightness (their channels sum to 500, those of the gray ground to 288): the sum shows the figure whatever
/// its colour, which a model learns sooner from few pictures.
inline constexpr std::array<SceneColour, 6> scene_colours{{{"red", {255, 122, 123}},
                                                           {"green", {123, 255, 122}},
                                                           {"blue", {122, 123, 255}},
                                                           {"yellow", {240, 240, 20}},
                                                           {"cyan", {20, 240, 240}},
                                                           {"pink", {240, 20, 240}}}};

/// Figures 0 to 3 are shapes, the ten behind them the digits 0 to 9.
inline constexpr std::array<std::string_view, 4> scene_shapes{"circle", "square", "triangle", "cross"};
inline constexpr std::size_t scene_figures = scene_shapes.size() + 10;

/// A figure in units of the picture's side, the origin at the left top.
struct SceneObject {
  std::size_t figure = 0;
  std::size_t colour = 0;
  double x = 0.5;  ///< centre
  double y = 0.5;
  double radius = 0.2;  ///< half the side of the square around it
};

/// Returns a square picture of `side` pixels, later objects above earlier objects, with smooth edges. Pure; any thread.
[[nodiscard]] Image paint_scene(std::span<const SceneObject> objects, std::int64_t side);

}  // namespace maestro
