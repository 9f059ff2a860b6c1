// SPDX-License-Identifier: Apache-2.0
// The members of an aggregate, without their names.
#pragma once

#include <cstddef>
#include <type_traits>

namespace maestro::cuda {

namespace members_internal {

struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): stands for a member of any type
};

template <class T, class... Members>
consteval std::size_t count() {
  if constexpr (requires { T{Members{}..., Anything{}}; }) {
    return count<T, Members..., Anything>();
  } else {
    return sizeof...(Members);
  }
}

}  // namespace members_internal

/// Calls visit(member) for each member of an aggregate, in their order. Not for aggregates of more than 13 members.
template <class T, class Visit>
void for_each_member(T& value, const Visit& visit) {
  const auto all = [&visit](auto&... members) { (visit(members), ...); };
  constexpr std::size_t count = members_internal::count<std::remove_const_t<T>>();
  static_assert(count >= 1 && count <= 13);
  if constexpr (count == 1) {
    auto& [a] = value;
    all(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    all(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    all(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    all(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    all(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    all(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    all(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    all(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    all(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    all(a, b, c, d, e, f, g, h, i, j, k, l);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
}

}  // namespace maestro::cuda
