// SPDX-License-Identifier: Apache-2.0
// The entry of a training app: App composes sources, sections and edges, and runs the job. main() calls
// prepare_signals() first.
#pragma once

#include "actors/process/app.hpp"             // IWYU pragma: export
#include "actors/process/graph_app.hpp"       // IWYU pragma: export
#include "actors/process/signal_watcher.hpp"  // IWYU pragma: export
