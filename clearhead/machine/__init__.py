"""Facts about this machine: devices, the allocator, the accuracy of its products, and the memory it has left."""
