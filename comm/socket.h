// TCP connections that carry short messages, each with a kind and a text.
#ifndef COMM_SOCKET_H_
#define COMM_SOCKET_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace comm {

using Deadline = std::chrono::steady_clock::time_point;

// A file descriptor that is closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Message {
  char kind = 0;
  std::string text;
};

class Link {
 public:
  Link() = default;
  explicit Link(Socket socket) : socket_(std::move(socket)) {}

  bool is_open() const { return socket_.is_open(); }
  void Close() { socket_ = Socket(); }
  // False: the other side is gone, or its buffer stayed full for 2 s, after which the connection is
  // as good as closed. Messages fit into the buffer of one that reads, so it does not wait there.
  bool Send(const Message& message);
  // The next message; none if there is none until `deadline` (in the past: only what is there).
  // Unavailable when the other side has closed and all it sent was read.
  absl::StatusOr<std::optional<Message>> Receive(Deadline deadline);

 private:
  std::optional<Message> TakeMessage();

  Socket socket_;
  std::string received_;
};

// Listens at a port (0: a free one) of the address `host`; empty: of all addresses, as a host's
// own name is often one of the loopback device. FailedPrecondition if the port is taken.
absl::StatusOr<Socket> Listen(const std::string& host, int port);
int PortOf(const Socket& listener);
// The next connection; none until the deadline.
std::optional<Link> Accept(const Socket& listener, Deadline deadline);
// Unavailable if nobody answers there.
absl::StatusOr<Link> Connect(const std::string& host, int port);

}  // namespace comm

#endif  // COMM_SOCKET_H_
