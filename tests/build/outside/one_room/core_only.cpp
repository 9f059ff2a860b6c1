// SPDX-License-Identifier: Apache-2.0
// Links a single room: its headers and library must not need the others.
#include "runtime/core/buffer.hpp"

int main() {
  maestro::BufferPool pool(64, 1);
  const auto only = pool.acquire();
  return only && !pool.acquire() ? 0 : 1;
}
