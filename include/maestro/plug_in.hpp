// SPDX-License-Identifier: Apache-2.0
// The entry of a plug-in: a shared library with section types that the program loads.
#pragma once

#include "sections/plug_in/plug_in.hpp"  // IWYU pragma: export
