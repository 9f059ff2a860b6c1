// SPDX-License-Identifier: Apache-2.0
// Access to the members of an aggregate without their names.
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

// Names the members of an aggregate of `number` members.
#define MAESTRO_MEMBERS(number, ...) \
  if constexpr (count == (number)) { \
    auto& [__VA_ARGS__] = value;     \
    all(__VA_ARGS__);                \
  }

/// Calls visit(member) for each member of an aggregate, in their order. Not for aggregates of more than 18 members.
template <class T, class Visit>
void for_each_member(T& value, const Visit& visit) {
  const auto all = [&visit](auto&... members) { (visit(members), ...); };
  constexpr std::size_t count = members_internal::count<std::remove_const_t<T>>();
  static_assert(count >= 1 && count <= 18);
  MAESTRO_MEMBERS(1, a)
  MAESTRO_MEMBERS(2, a, b)
  MAESTRO_MEMBERS(3, a, b, c)
  MAESTRO_MEMBERS(4, a, b, c, d)
  MAESTRO_MEMBERS(5, a, b, c, d, e)
  MAESTRO_MEMBERS(6, a, b, c, d, e, f)
  MAESTRO_MEMBERS(7, a, b, c, d, e, f, g)
  MAESTRO_MEMBERS(8, a, b, c, d, e, f, g, h)
  MAESTRO_MEMBERS(9, a, b, c, d, e, f, g, h, i)
  MAESTRO_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
  MAESTRO_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
  MAESTRO_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  MAESTRO_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  MAESTRO_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  MAESTRO_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  MAESTRO_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
  MAESTRO_MEMBERS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
  MAESTRO_MEMBERS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)
}

#undef MAESTRO_MEMBERS

}  // namespace maestro::cuda
