// SPDX-License-Identifier: Apache-2.0
#include "transport/region.hpp"

#include <utility>

#include "transport/region_registration.hpp"

namespace maestro {

Region::Region(std::unique_ptr<Registration> registration) : registration_(std::move(registration)) {}
Region::Region(Region&&) noexcept = default;
Region& Region::operator=(Region&&) noexcept = default;
Region::~Region() = default;

std::byte* Region::data() const {
  return registration_->data;
}
std::size_t Region::bytes() const {
  return registration_->bytes;
}

RemoteRegion Region::remote() const {
  const auto& self = *registration_;
  const auto base = self.domain->uses_virtual_addresses() ? reinterpret_cast<std::uintptr_t>(self.data) : 0;
  return {fi_mr_key(self.handle.get()), base, self.bytes};
}

}  // namespace maestro
