// SPDX-License-Identifier: Apache-2.0
// The interface of a data source: samples with tokens, targets and images.
#pragma once

#include "runtime/data/corpus.hpp"  // IWYU pragma: export
