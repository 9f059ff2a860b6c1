// SPDX-License-Identifier: Apache-2.0
// libfabric's side of a Region. Internal to this folder.
#pragma once

#include "transport/fabric/fabric_domain.hpp"
#include "transport/region.hpp"

namespace maestro {

struct Region::Registration {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<FabricDomain> domain;  // shared with the endpoint: a domain outlives its regions (FD-1)
  FabricPtr<fid_mr> handle;              // after `domain`, so that it closes first
};

}  // namespace maestro
