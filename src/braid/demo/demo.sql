-- dialect: ksqldb
-- Flights from New York, the planes they flew with and the weather they left in.

CREATE STREAM flights (
  tailnum VARCHAR KEY, carrier VARCHAR, flight INT, origin VARCHAR, dest VARCHAR,
  departed BIGINT, delay INT, distance INT, cancelled BOOLEAN
) WITH (kafka_topic = 'flights', value_format = 'JSON', partitions = 1, timestamp = 'departed');

CREATE STREAM weather (
  origin VARCHAR KEY, hour BIGINT, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visibility DOUBLE
) WITH (kafka_topic = 'weather', value_format = 'JSON', partitions = 1, timestamp = 'hour');

CREATE TABLE planes (
  tailnum VARCHAR PRIMARY KEY, year INT, manufacturer VARCHAR, model VARCHAR, seats INT
) WITH (kafka_topic = 'planes', value_format = 'JSON', partitions = 1);

-- 1. Every flight with its plane: a stream looks into a table.
CREATE STREAM flights_with_plane AS
  SELECT f.tailnum AS tailnum, f.carrier AS carrier, f.flight AS flight, f.dest AS dest,
         p.manufacturer AS manufacturer, p.model AS model, p.seats AS seats
  FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum;

-- 2. Flights and the weather reports at their airport within the hour before departure. Flights without a report go
--    out too, once no report can come any more.
CREATE STREAM flights_with_weather AS
  SELECT f.origin AS origin, f.carrier AS carrier, f.flight AS flight, f.departed AS departed, f.delay AS delay,
         w.hour AS report, w.wind_speed AS wind_speed, w.visibility AS visibility
  FROM flights f LEFT JOIN weather w WITHIN (1 HOUR, 0 SECONDS) GRACE PERIOD 10 MINUTES
  ON f.origin = w.origin;

-- 3. Tail numbers seen so far, and the planes they belong to: two tables joined, kept current.
CREATE TABLE seen AS
  SELECT tailnum, COUNT(*) AS flights, SUM(distance) AS miles FROM flights GROUP BY tailnum;

CREATE TABLE fleet AS
  SELECT p.tailnum AS tailnum, p.manufacturer AS manufacturer, p.model AS model, s.flights AS flights, s.miles AS miles
  FROM planes p JOIN seen s ON p.tailnum = s.tailnum;
