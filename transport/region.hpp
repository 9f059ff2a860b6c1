// SPDX-License-Identifier: Apache-2.0
// Memory that the endpoint may read from and that peers may write into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace maestro {

/// The data that a peer needs in order to write into a region. Plain data; travels in messages.
struct RemoteRegion {
  std::uint64_t key = 0;
  std::uint64_t base = 0;  ///< address of the first byte as the provider counts: virtual address, or 0
  std::uint64_t bytes = 0;
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

/// Place of registered memory.
struct MemoryLocation {
  std::optional<int> cuda;  ///< K of "cuda:K" in this process's numbering; nothing: the host
  /// Returns "cuda:K" or "the host".
  [[nodiscard]] std::string text() const { return cuda ? "cuda:" + std::to_string(*cuda) : "the host"; }
};

/// A registration, move-only. It does not own the memory, which must outlive it. It may outlive its endpoint. Destroy
/// it only after all writes into it and from it have ended.
class Region {
 public:
  struct Registration;  ///< libfabric's part
  explicit Region(std::unique_ptr<Registration> registration);
  Region(Region&&) noexcept;
  Region& operator=(Region&&) noexcept;
  ~Region();

  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] RemoteRegion remote() const;
  [[nodiscard]] const Registration& registration() const { return *registration_; }

 private:
  std::unique_ptr<Registration> registration_;
};

}  // namespace maestro
