#include "actors/control/service_door.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thrift/TConfiguration.h>
#include <thrift/TProcessor.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/control/service_stream.hpp"
#include "actors/control/socket_address.hpp"

namespace maestro {

using apache::thrift::TConfiguration;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TTransportException;

struct ServiceDoor::State {
  State(DoorOptions given, MakeProcessor maker)
      : options(std::move(given)),
        make_processor(std::move(maker)),
        address(parse_socket_address(options.address)),
        limits(std::make_shared<TConfiguration>(options.largest_message, options.largest_message)) {
    if (options.keys) tls.emplace(*options.keys, TlsContext::Side::server);
    listener = listen_at(address);
    wake = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    acceptor = std::thread([this] { accept_clients(); });
  }

  struct Client {
    std::string peer;
    std::shared_ptr<ServiceStream> stream;  ///< shared by its thread and stop(), which ends it from outside
    std::thread thread;
    bool gone = false;
  };

  void accept_clients();
  void admit(FileDescriptor socket);
  void begin(FileDescriptor socket, std::string peer);
  void serve(Client& client);
  void answer(Client& client, const std::shared_ptr<TProcessor>& processor);
  void forget_gone(std::unique_lock<std::mutex>& lock);
  void wait_for_descriptors() const;
  void refuse(const std::string& peer, const std::string& reason) const {
    if (options.refused) options.refused(peer, reason);
  }
  void stop();

  DoorOptions options;
  MakeProcessor make_processor;
  SocketAddress address;
  std::shared_ptr<TConfiguration> limits;  // shared: Thrift's transports and protocols each keep it
  std::optional<TlsContext> tls;
  FileDescriptor listener;
  FileDescriptor wake;

  std::mutex mutex;
  bool stopping = false;
  std::list<Client> clients;
  std::thread acceptor;  // last: uses all above
};

void ServiceDoor::State::accept_clients() {
  while (true) {
    pollfd waited[2] = {{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(waited, 2, -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      wait_for_descriptors();
    }
  }
}

/// The listener stays readable when there is no descriptor for the next client: looking again at once would spin.
void ServiceDoor::State::wait_for_descriptors() const {
  pollfd stopped{wake.get(), POLLIN, 0};
  ::poll(&stopped, 1, 100);
}

void ServiceDoor::State::admit(FileDescriptor socket) {
  std::string peer = peer_name(socket.get());
  std::unique_lock lock(mutex);
  forget_gone(lock);
  if (stopping) return;
  if (clients.size() >= options.most_clients) {
    lock.unlock();
    refuse(peer, "there are " + std::to_string(options.most_clients) + " clients already");
    return;
  }
  try {
    begin(std::move(socket), peer);
  } catch (const std::exception& failure) {  // no memory, no thread: the next client may fare better
    lock.unlock();
    refuse(peer, failure.what());
  }
}

void ServiceDoor::State::begin(FileDescriptor socket, std::string peer) {
  if (!address.local()) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  TlsSession session = tls ? tls->open(socket.get()) : nullptr;
  auto stream = std::make_shared<ServiceStream>(std::move(socket), std::move(session), options.patience);
  Client& client = clients.emplace_back();
  client.peer = std::move(peer);
  client.stream = std::move(stream);
  try {
    client.thread = std::thread([this, &client] { serve(client); });
  } catch (...) {
    clients.pop_back();
    throw;
  }
}

void ServiceDoor::State::serve(Client& client) {
  const std::shared_ptr<ServiceStream> stream = client.stream;
  try {
    stream->handshake();
    answer(client, make_processor(client.peer));
  } catch (const std::exception& failure) {
    refuse(client.peer, failure.what());
    stream->hear_out();
  }
  stream->close();
  const std::lock_guard lock(mutex);
  client.stream.reset();
  client.gone = true;
}

void ServiceDoor::State::answer(Client& client, const std::shared_ptr<TProcessor>& processor) {
  const auto framed = std::make_shared<TFramedTransport>(client.stream, limits);
  const auto protocol =
      std::make_shared<TBinaryProtocol>(framed, options.largest_message, options.largest_message, true, true);
  while (client.stream->wait_for_message()) {
    if (!processor->process(protocol, protocol, nullptr)) return;
  }
}

void ServiceDoor::State::forget_gone(std::unique_lock<std::mutex>& /*held*/) {
  std::erase_if(clients, [](Client& client) {
    if (client.gone) client.thread.join();  // it holds no lock any more and is about to end
    return client.gone;
  });
}

void ServiceDoor::State::stop() {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    stopping = true;
  }
  ::eventfd_write(wake.get(), 1);
  acceptor.join();
  {
    const std::lock_guard lock(mutex);
    for (Client& client : clients) {
      if (client.stream) client.stream->shut_down();
    }
  }
  for (Client& client : clients) client.thread.join();  // nobody else touches the list any more
  clients.clear();
  listener.reset();
  if (address.local()) ::unlink(address.path.c_str());
}

ServiceDoor::ServiceDoor(DoorOptions options, std::shared_ptr<TProcessor> processor)
    : ServiceDoor(std::move(options), [processor = std::move(processor)](const std::string&) { return processor; }) {}

ServiceDoor::ServiceDoor(DoorOptions options, MakeProcessor make_processor)
    : state_(std::make_unique<State>(std::move(options), std::move(make_processor))) {}

ServiceDoor::~ServiceDoor() {
  stop();
}

std::string ServiceDoor::address() const {
  return state_->address.text();
}

void ServiceDoor::stop() {
  state_->stop();
}

}  // namespace maestro
