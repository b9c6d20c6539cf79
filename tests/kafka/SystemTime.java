package org.apache.kafka.common.utils;

import java.util.function.Supplier;

/** Kafka's clock, wrong by as many milliseconds as the property "skew" says: none by default. */
class SystemTime implements Time {
    private static final SystemTime INSTANCE = new SystemTime();
    private static final long SKEW_MS = Long.getLong("skew", 0L);

    static SystemTime getSystemTime() {
        return INSTANCE;
    }

    public long milliseconds() {
        return System.currentTimeMillis() + SKEW_MS;
    }

    public long nanoseconds() {
        return System.nanoTime();
    }

    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        synchronized (object) {
            while (true) {
                if (condition.get()) {
                    return;
                }
                long now = milliseconds();
                if (now >= deadlineMs) {
                    throw new org.apache.kafka.common.errors.TimeoutException("the condition did not come true");
                }
                object.wait(deadlineMs - now);
            }
        }
    }
}
